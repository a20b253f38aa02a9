"""Hardware of the hotrow accelerator, in Amaranth. Import the modules directly; this package runs nothing."""
