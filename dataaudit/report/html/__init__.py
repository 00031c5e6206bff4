"""The report: one HTML file of a manifest. A pure view model, charts of it, and templates that show both."""
