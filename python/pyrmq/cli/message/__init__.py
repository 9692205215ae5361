"""`pyrmq send | tail | message | dlq`: messages, sent, shown and found again."""
