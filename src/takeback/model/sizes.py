"""Numbers of bytes, as people read them."""


def bytes_in_words(count: int) -> str:
    if count < 1024:
        return f"{count} bytes" if count != 1 else "1 byte"
    value = float(count)
    for unit in ("KB", "MB", "GB", "TB"):
        value /= 1024
        if value < 1024 or unit == "TB":
            break
    return f"{value:.0f} {unit}" if value >= 100 else f"{value:.1f} {unit}"
