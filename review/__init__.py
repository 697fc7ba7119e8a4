"""What a pull request would do to the stacks: read from plans, judged by the gate, told in one comment.

Pure but for `review.github`, which talks to GitHub, and `review.__main__`, which reads and writes files. No Pulumi:
plans are the JSON that `pulumi preview --json` and `make render` wrote.
"""
