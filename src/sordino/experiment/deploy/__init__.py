"""A federation on many machines: its folders, its certificates, its processes, and the guard before its coordinator.

federation.toml ─► `layout.write` ─► coordinator/  sites/NAME/      one folder a machine, none knows another's keys
                                     `processes`   what runs in a folder; `local` starts all of them on this machine
                                     `checking`    what is wrong with a folder, in words

Flower carries the messages. Its private interfaces are called in `flower_code.py` only.
"""
