"""What can be typed? One file for each kind of command; `traincost` is all of them."""
