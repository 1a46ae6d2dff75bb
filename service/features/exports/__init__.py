"""Questions as files of launchers and frameworks, and back."""
