"""What tests share: data, settings, and ways to run commands."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
