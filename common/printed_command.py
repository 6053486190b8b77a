"""The commands that the programs print for operators, who copy them into a shell.

Their words come from objects that tenants, nodes and other API servers write. No other module puts
such a word into a command.
"""

import shlex


def printed_command(command: str, *values: str, **options: str | bool) -> str:
    """Return a command with values and options, each quoted as one word for a shell.

    An option of one letter gets one dash. `True` is an option without a value; `False` leaves it
    out. Raises `ValueError`: a value begins with `-`, so that a program would read it as an option.
    None does after `--`, as the last word of `command`.
    """
    words = [command]
    words += map(shlex.quote if command.endswith(" --") else _quote_value, values)
    for name, value in options.items():
        if value is False:
            continue
        words.append(f"-{name}" if len(name) == 1 else f"--{name.replace('_', '-')}")
        if value is not True:
            words.append(_quote_value(value))
    return " ".join(words)


def _quote_value(value: str) -> str:
    if value.startswith("-"):
        raise ValueError(f"{value!r} must not begin with a dash: it would be an option")
    return shlex.quote(value)
