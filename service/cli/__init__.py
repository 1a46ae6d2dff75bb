"""The commands of traincost."""
