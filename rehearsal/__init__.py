"""AWS without AWS: stand-ins for the providers `aws` and `eks` under the real engine, and the account they keep."""
