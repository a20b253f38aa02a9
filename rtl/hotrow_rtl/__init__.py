"""Hardware of the hotrow accelerator, in Amaranth. Import its modules directly."""
