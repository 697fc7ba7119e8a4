"""What the autoscaler will do with a load, in virtual time, from the manifests that are deployed.

Pure, as all of fleet/: no clock, no disk, and chance only from a seed.
"""
