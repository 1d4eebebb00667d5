"""Checks of frames, before Proton reads them and after it wrote them: windows, handles and flows."""
