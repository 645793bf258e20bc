"""Writes directories that imitate /dev and /sys of machines with a TPU."""

from pathlib import Path

GOOGLE, NETWORK_CARD = "0x1ae0", "0x0042"


def add_pci_device(root: Path, slot: int, device: str, vendor: str = GOOGLE) -> None:
    """Add a device to the PCI bus of an imitated machine, below `root`."""
    directory = root / f"sys/bus/pci/devices/0000:00:{slot:02x}.0"
    directory.mkdir(parents=True)
    (directory / "vendor").write_text(f"{vendor}\n")
    (directory / "device").write_text(f"{device}\n")


def add_file(root: Path, name: str, content: str = "") -> Path:
    """Add a file to an imitated machine, such as dev/vfio/0 below `root`."""
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)
    return path


def v5e_of_four_chips(root: Path) -> Path:
    """Imitate a TPU VM with four v5e chips in a directory; return the directory."""
    add_pci_device(root, 1, NETWORK_CARD)
    for chip in range(4):
        add_pci_device(root, 4 + chip, "0x0063")
        add_file(root, f"dev/vfio/{chip}")
    add_file(root, "dev/vfio/vfio")
    add_file(root, "sys/kernel/mm/transparent_hugepage/enabled", "[always] madvise never\n")
    return root
