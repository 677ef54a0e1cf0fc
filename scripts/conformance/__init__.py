"""What judges that others wrote say of Shepherd: `make conformance` writes docs/conformance.md."""
