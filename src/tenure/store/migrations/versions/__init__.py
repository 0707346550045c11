"""The revisions. Each names its `phase`: "pre" is additive, "post" takes away."""
