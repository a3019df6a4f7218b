"""The shared ground: API clients, roles, audit log, problems, pagination. The one part of the site others import."""
