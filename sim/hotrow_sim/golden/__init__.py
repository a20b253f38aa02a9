"""What each unit must compute, in NumPy alone and without a notion of time."""
