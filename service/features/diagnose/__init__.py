"""Why did a job run out of memory, and what is to change?"""
