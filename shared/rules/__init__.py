"""What happens to a page when something is said of it: one set of rules for all who keep pages."""
