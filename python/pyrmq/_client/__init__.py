"""What producer, consumer, admin and their asyncio forms share."""
