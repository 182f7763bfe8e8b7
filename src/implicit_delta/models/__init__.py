"""What goes in: fitted models, one file per ecosystem."""
