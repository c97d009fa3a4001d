"""Boxes: an effect moves a box from one point to another."""
