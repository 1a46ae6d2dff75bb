"""How does torch train the model of a question, step by step, and what does memory hold meanwhile?"""
