"""The API's shell: who calls, what they may do, how often, and what an error looks like."""
