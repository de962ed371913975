//! Fixtures for tests and the demo.
