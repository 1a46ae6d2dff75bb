"""What can be done from the command line? `traincost serve`, and the same answers without a server."""

from service.commands.application import main

if __name__ == "__main__":
    main()
