"""`pyrmq debug`: what a bug report needs, without secrets."""
