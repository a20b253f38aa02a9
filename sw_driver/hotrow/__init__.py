"""Host driver of the hotrow accelerator."""
