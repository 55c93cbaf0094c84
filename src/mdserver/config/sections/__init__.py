"""The sections of the parameter table: one attrs class a section, one field a parameter."""
