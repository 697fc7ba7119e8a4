"""The registrations: each component asks fleet/ what should be true, and tells Pulumi."""
