"""What happens while an agent trains: schedules and controls, the loop, collectors and one trainer per algorithm."""
