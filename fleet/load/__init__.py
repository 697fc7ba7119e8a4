"""Load: what is asked, how fast, and what must come of it. The program that asks is services/load."""
