"""What an op is: formula or forward function, rules, a call, an entry on the tape. Read base.py, call.py, pointwise.py, custom.py."""
