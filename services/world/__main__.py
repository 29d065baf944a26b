"""`python -m services.world PLAN`."""

from services.world.worker import main

main()
