"""The web console in a real Chromium.

The stories of a user, and where each is tried:

    start a run                    test_runs.py
    stop in each mode              test_runs.py (now, after_turn), test_session.py (after_tools, kill)
    approve with an edit           test_inbox.py; what stays of it: test_approved.py
    steer                          test_going_on.py
    attach an image                test_attachments.py
    follow a tree of agents        test_trace.py
    find last week's run           test_finding.py
    resume after a crash           test_crash.py: kill -9, and another server
    offline                        test_hardships.py, with a wire that is cut
    two people                     test_runs.py, test_hardships.py: two tabs, many tabs

STORIES.md tells what was awkward in each before, and how it is now. With the keyboard alone, on a phone, and with axe:
test_access.py. Where Stop is: test_steady.py. What it weighs: test_weight.py. 500 tools and a megabyte: test_smooth.py.
The client: test_client.py.
"""
