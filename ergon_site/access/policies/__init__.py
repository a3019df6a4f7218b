"""Versioned policies for any app: rows, verbs and console pages, made from a dataclass whose fields carry their rules.

An app that has policies of its own writes two models (`models.PolicyRow`, `models.VersionRow`), an instance of
`verbs.Policies`, and two pages (`page.PolicyPage`, `version_page.VersionPage`).
"""
