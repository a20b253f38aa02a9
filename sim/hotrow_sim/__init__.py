"""Golden models, memory models, and the accelerator as a device in simulation."""
