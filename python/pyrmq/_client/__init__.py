"""Common parts of producers, consumers, admin and their asyncio forms."""
