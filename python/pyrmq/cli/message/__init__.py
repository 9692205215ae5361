"""`pyrmq send | tail | message | dlq`: sends, shows and finds messages."""
