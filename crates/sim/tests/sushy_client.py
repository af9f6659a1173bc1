"""Drives one BMC by sushy: a boot from the network for once, and a power cycle.

Usage: sushy_client.py URL USER PASSWORD CERTIFICATE
"""

import sys
import time

import sushy

DEADLINE_S = 120


def wait(system, what, wanted):
    started = time.monotonic()
    while not wanted():
        if time.monotonic() - started > DEADLINE_S:
            sys.exit(f"{what} did not happen: power {system.power_state}, boot {dict(system.boot)}")
        time.sleep(0.05)
        system.refresh(force=True)


def expect(what, found, wanted):
    if found != wanted:
        sys.exit(f"{what} is {found}, not {wanted}")


def main():
    url, user, password, certificate = sys.argv[1:]
    connection = sushy.Sushy(url, username=user, password=password, verify=certificate)
    (system,) = connection.get_system_collection().get_members()
    expect("power", system.power_state, sushy.PowerState.OFF)

    system.set_system_boot_options(sushy.BootSource.PXE, enabled=sushy.BootSourceOverrideEnabled.ONCE)
    system.refresh(force=True)
    expect("boot target", system.boot.target, sushy.BootSource.PXE)
    expect("boot enabled", system.boot.enabled, sushy.BootSourceOverrideEnabled.ONCE)

    system.reset_system(sushy.ResetType.ON)
    wait(system, "power on", lambda: system.power_state == sushy.PowerState.ON)
    wait(
        system,
        "the end of the override",
        lambda: system.boot.enabled == sushy.BootSourceOverrideEnabled.DISABLED,
    )
    system.reset_system(sushy.ResetType.FORCE_OFF)
    wait(system, "power off", lambda: system.power_state == sushy.PowerState.OFF)
    system.reset_system(sushy.ResetType.ON)
    wait(system, "power on again", lambda: system.power_state == sushy.PowerState.ON)
    print("done")


if __name__ == "__main__":
    main()
