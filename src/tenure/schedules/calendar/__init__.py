"""When something is due, by nothing but the calendar: no clock, no database."""
