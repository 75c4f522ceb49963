"""The coordinator of silos on other machines: it asks by letters, and keeps what they grant and release."""
