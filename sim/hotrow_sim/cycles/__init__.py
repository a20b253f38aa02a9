"""Cycles of each unit by formula; tests hold the hardware to them within 5 %."""
