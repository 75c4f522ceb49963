"""What of Flower a federation needs besides the apps: who runs them, on both sides, and stand-ins for tests."""
