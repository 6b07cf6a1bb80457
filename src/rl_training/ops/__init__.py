"""Maths on arrays: pure functions that know no networks, no configs and no clock."""
