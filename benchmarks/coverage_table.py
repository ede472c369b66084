def write_page(page, rows):
    pass
