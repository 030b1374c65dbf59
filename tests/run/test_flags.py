"""What a command adds to the library: flags for the parameters that an error names, options declared once."""

from __future__ import annotations

import argparse
import pickle

import pytest
from pyro_fairvae.run.__main__ import COMMANDS
from pyro_fairvae.run.command import (
    Machine,
    add_data_dir,
    add_machine,
    add_options,
    given_options,
    in_flags,
    prepare,
)

from pyro_fairvae.base.errors import InputError
from pyro_fairvae.base.options import options_of


def test_an_error_shows_the_flags_that_the_command_has() -> None:
    error = InputError("no room.", "data_dir", "out")
    assert in_flags(error, argparse.Namespace(out="here", data_dir=None)) == "no room. See --data-dir, --out."
    assert in_flags(error, argparse.Namespace(data_dir=None)) == "no room. See --data-dir."
    assert in_flags(error, argparse.Namespace()) == "no room."
    assert in_flags(InputError("no room."), argparse.Namespace(out="here")) == "no room."
    unknown = InputError("no such member.", "lambda_")
    assert in_flags(unknown, argparse.Namespace(lambda_=1.0)) == "no such member. See --lambda."


def test_an_error_keeps_its_parameters_between_processes() -> None:
    sent = pickle.loads(pickle.dumps(InputError("no room.", "out")))
    assert (str(sent), sent.parameters) == ("no room.", ("out",))


def test_machine_options_are_those_of_the_dataclass() -> None:
    parser = argparse.ArgumentParser()
    add_machine(parser)
    add_data_dir(parser)
    defaults = vars(parser.parse_args([]))
    assert defaults == {name: each.default for name, each in options_of(Machine).items()} | {"data_dir": None}
    assert prepare(parser.parse_args(["--device", "cpu"])).type == "cpu"
    with pytest.raises(InputError, match="threads must be at least 1, got 0"):
        prepare(parser.parse_args(["--threads", "0"]))


def test_options_that_were_not_given_are_not_given() -> None:
    parser = argparse.ArgumentParser()
    add_options(parser, Machine)
    assert given_options(parser.parse_args([]), Machine) == {}
    assert given_options(parser.parse_args(["--threads", "2"]), Machine) == {"threads": "2"}


def declared() -> dict[str, list[argparse.Action]]:
    """The options of all commands and their parts, by flag."""
    by_flag: dict[str, list[argparse.Action]] = {}

    def gather(parser: argparse.ArgumentParser) -> None:
        for action in parser._actions:
            if isinstance(action, argparse._SubParsersAction):
                for part in action.choices.values():
                    gather(part)
            for flag in action.option_strings:
                by_flag.setdefault(flag, []).append(action)

    for module in COMMANDS.values():
        parser = argparse.ArgumentParser()
        module.add_arguments(parser)
        gather(parser)
    return by_flag


@pytest.mark.parametrize(
    ("flag", "share"),
    [("--threads", 5), ("--data-dir", 4), ("--lambdas", 3), ("--quiet", 5), ("--levels", 3)],
)
def test_a_flag_is_explained_in_the_same_words_everywhere(flag: str, share: int) -> None:
    actions = declared()[flag]
    assert len(actions) >= share
    words = {(action.help or "").partition(" (default")[0].partition(";")[0] for action in actions}
    assert len(words - {"no progress in words", "folder with the data set's files, as in training"}) == 1


def test_every_option_is_explained() -> None:
    for flag, actions in declared().items():
        assert all(action.help for action in actions), flag
