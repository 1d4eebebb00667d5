"""Links on Proton's C functions: credit out, deliveries in, messages out, outcomes back."""
