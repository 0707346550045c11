"""One file per database that Tenure runs on."""
