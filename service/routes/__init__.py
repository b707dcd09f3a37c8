"""The routes of the API, by subject; they only translate between HTTP and the other modules.

Parameters that many routes take are declared once, as types: the open result of the job in the path, the service that
the routes of a process share, the caller, headers of the answer, and permits that limit how many requests run at a
time.
"""
