"""Numbers of bytes and seconds, as people read them."""


def bytes_in_words(count: int) -> str:
    if count < 1024:
        return f"{count} bytes" if count != 1 else "1 byte"
    value = float(count)
    for unit in ("KB", "MB", "GB", "TB"):
        value /= 1024
        if value < 1024 or unit == "TB":
            break
    return f"{value:.0f} {unit}" if value >= 100 else f"{value:.1f} {unit}"


def span_in_words(seconds: int) -> str:
    """In the largest unit that fits, rounded down."""
    units = ((86400, "day"), (3600, "hour"), (60, "minute"), (1, "second"))
    size, word = next((one for one in units if seconds >= one[0]), units[-1])
    count = seconds // size
    return f"{count:,} {word}" if count == 1 else f"{count:,} {word}s"
