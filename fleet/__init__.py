"""The decisions: what should be true. No Pulumi, no network, no clock."""
